"""A training script whose imports are timed apart: `without_imports.py train|plain ARGUMENTS…`; prints seconds."""

import importlib
import json
import sys
import time

sys.path[:0] = ["/opt/gangplank/trainer", "/out"]
name = sys.argv.pop(1)
began = time.perf_counter()
module = importlib.import_module(name)
print(json.dumps({"event": "imports", "seconds": time.perf_counter() - began}), flush=True)
sys.exit(module.main(sys.argv[1:]) if name == "train" else module.main())
