"""Makes the cache of executed tutorials safe for two processes, since `make docs` reads pages with two.

jupyter-cache (1.0) was made for one. Two faults show when tutorials end at the same moment:

- Two processes that find no data base both make its tables. So it is made here, before any page is read.
- After it has stored a notebook, a process looks for entries beyond the limit of a thousand: those that are not among
  the newest thousand. Both lists are read one after the other, and an entry that another process adds in between is
  taken for one too many, and removed while it is being written. There are ten tutorials, so nothing is removed.
"""

from typing import Any

from jupyter_cache import get_cache
from jupyter_cache.cache.main import JupyterCacheBase


def prepare(app: Any, config: Any) -> None:
    """Make the data base of the cache, and keep all of its entries."""
    JupyterCacheBase.truncate_caches = lambda cache: None
    assert get_cache(config.nb_execution_cache_path).db is not None


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
