"""Programs of the gallery: they run, warn of nothing, hold what they claim by their own asserts, and draw a picture."""

import ast
import importlib.util
import runpy
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem)
def test_program(script, tmp_path, monkeypatch, capsys):
    tree = ast.parse(script.read_text("utf-8"))
    needed = {name.split(".")[0] for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
              for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])}
    for module in sorted(needed):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    (tmp_path / "data").symlink_to(ROOT / "data")
    runpy.run_path(str(script), run_name="__main__")
    import_module("matplotlib.pyplot").close("all")
    assert capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.svg")] == [f"{script.stem}.svg"]
