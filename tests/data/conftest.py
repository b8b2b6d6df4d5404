import pytest

from data_files import TINY_MNIST, write_idx
from data_site import Site
from zeroone.data import download


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSES", (0.01, 0.02, 0.04, 0.0))
    folder = tmp_path / "site"
    folder.mkdir()
    write_idx(folder, TINY_MNIST, packed=True)
    site = Site(folder)
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"
