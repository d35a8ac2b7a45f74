"""Threads that come and go, each with records of its own."""

import threading

import torch

import rankscope

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def work(number):
    with rankscope.phase("beside"):
        rankscope.log(number=number)


train()
for i in range(40):
    thread = threading.Thread(target=work, args=(i,))
    thread.start()
    thread.join()
    train()
