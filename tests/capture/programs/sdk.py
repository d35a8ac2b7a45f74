import json
import sys
import time

import torch
from torch import nn

import rankscope

folder = rankscope.start(name="mine")
model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
rankscope.watch(model, modules="1.*")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(12):
    with rankscope.step():
        with rankscope.phase("tokenise"):
            time.sleep(0.001)
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        rankscope.log(loss=loss, number=i, text="no number")
rankscope.stop()
with rankscope.step(), rankscope.phase("after"):
    rankscope.log(more=1)
model(torch.ones(2, 4)).sum().backward()
print(json.dumps({"folder": folder, "numpy": "numpy" in sys.modules}))
