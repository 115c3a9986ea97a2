"""Data that become invalid during a fit."""


class SpoiledBatches:
    """64 examples of 3 classes in four batches; from the given epoch on, one label has no output of the network.

    It is in the third batch, in steps 3, 7, 11, ..., none of which is a multiple of ten.
    """

    def __init__(self, x, y, epoch):
        self.batches = [(x[i : i + 16], y[i : i + 16].clone()) for i in range(0, 64, 16)]
        self.epoch, self.epochs = epoch, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.epochs += 1
        if self.epochs == self.epoch:
            self.batches[2][1][3] = 7
        return iter(self.batches)
