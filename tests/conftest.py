"""One thread for each test process: tiny networks are not faster with two, and spinning threads slow down others."""

import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SPECCHAT_CACHE", tempfile.mkdtemp(prefix="specchat-cache-"))
