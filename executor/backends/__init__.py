"""What runs regions: `base` is the contract, `weak_memory` the adversary and default, `eager` the baseline."""
