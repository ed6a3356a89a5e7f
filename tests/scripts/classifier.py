"""A small text classifier: is a review good or bad? The reviews are made by rules from a seed; nobody wrote them.

A bag of words, a linear layer, DistributedDataParallel and a DistributedSampler, as a first tutorial has it.
"""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GOOD = ["great", "lovely", "brilliant", "warm", "funny", "moving"]
BAD = ["dull", "awful", "boring", "cold", "clumsy", "endless"]
OTHER = ["the", "film", "story", "actor", "was", "and", "a", "scene", "music", "ending", "very", "quite"]
VOCABULARY = {word: number for number, word in enumerate(GOOD + BAD + OTHER)}


class Reviews(Dataset):
    """Each review has twelve words; most of those that judge are of its own kind."""

    def __init__(self, size, seed):
        chance = random.Random(seed)
        self.items = []
        for _ in range(size):
            label = chance.randrange(2)
            own, opposite = (GOOD, BAD) if label else (BAD, GOOD)
            words = chance.choices(own, k=3) + chance.choices(opposite, k=1) + chance.choices(OTHER, k=8)
            chance.shuffle(words)
            self.items.append((words, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        words, label = self.items[index]
        return torch.tensor([VOCABULARY[word] for word in words]), label


def accuracy(model, reviews):
    with torch.no_grad():
        right = sum(int(model(words[None]).argmax()) == label for words, label in reviews)
    return right / len(reviews)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(7)
    train, test = Reviews(600, seed=1), Reviews(200, seed=2)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=20, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(len(VOCABULARY), 16), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for words, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), labels)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {accuracy(model.module, test):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
