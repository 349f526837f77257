"""One thread for each test process: tiny networks gain nothing from two, and spinning threads starve others."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
