"""Data that go wrong while a fit is under way."""


class SpoiledBatches:
    """64 examples of 3 classes in good batches, and from this epoch on one label that there is no output for.

    It is in the third batch of four: of steps 3, 7, 11, ..., of which none is a multiple of ten.
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
