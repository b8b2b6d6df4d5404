import pytest
from runs_made_up import SPEC

from paper.matrix.spec import Spec


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return Spec.read(path)
