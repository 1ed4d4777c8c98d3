"""Workers that jobs share: which one hosts a TaskManager, who comes first, and when an idle one ends."""
