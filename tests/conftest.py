"""One thread for each test process: tiny networks are not faster with two, and spinning threads slow down others."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SPECCHAT_CACHE", tempfile.mkdtemp(prefix="specchat-cache-"))
# Without the starter model, the embedded model is the default; the starter is declined, so no command offers it.
os.environ["SPECCHAT_MODELS"] = tempfile.mkdtemp(prefix="specchat-models-")
(Path(os.environ["SPECCHAT_MODELS"]) / "starter-declined").touch()
