"""What tuning taught, kept for all: records and trained trees by class of device (TVM's tophub).

In: a target.  Out: records that `relay.build` uses where nothing better is known, and the trees
that a search begins with and that predict the rest.  Some ship with the package, a site adds
folders of its own.
Read next: `store.py`, `trees.py`; `search/publish.py` makes them from logs.
"""

from tilewright.knowledge.device_class import device_class
from tilewright.knowledge.install import forget, use
from tilewright.knowledge.store import folders, records, trees

__all__ = ["device_class", "folders", "forget", "records", "trees", "use"]
