import json

import torch

import rankscope
from rankscope.base.guard import Errors
from rankscope.capture import observer

observer.stop()  # as where a program starts Python with torch already imported
rankscope.log(loss=1.0)
rankscope.log(loss=1.0)
print(json.dumps({"observed": observer.current() is not None, "errors": Errors.count, "last": Errors.last}))
torch.ones(1)
