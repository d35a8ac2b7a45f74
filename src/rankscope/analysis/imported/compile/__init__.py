"""What torch.compile's logs of several ranks say."""
