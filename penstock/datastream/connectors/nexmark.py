"""The names of `penstock.connectors.nexmark`, where programs import connectors."""

from penstock.connectors.nexmark import AUCTION, BID, PERSON, NexmarkGenerator, NexmarkSource

__all__ = ["AUCTION", "BID", "PERSON", "NexmarkGenerator", "NexmarkSource"]
