import json
import os

import torch

import rankscope
from rankscope.capture import observer

before = observer.current() is not None
rankscope.stop()
with rankscope.step(), rankscope.phase("after"):
    rankscope.log(more=1)
rankscope.watch(torch.nn.Linear(2, 2))
stopped = observer.current() is None
rankscope.start(config={"level": "light"})
print(json.dumps({"before": before, "stopped": stopped, "again": observer.current().config.level, "pid": os.getpid()}))
