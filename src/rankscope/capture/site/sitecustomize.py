"""Loaded by Python itself in every process below `rankscope run` (its folder is first on PYTHONPATH).

Runs the sitecustomize that this one hides, then arms one import hook. Nothing else happens until torch is imported.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _run_the_hidden_one():
    paths = [p for p in sys.path if os.path.abspath(p or os.curdir) != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _find_rankscope():
    """Make `import rankscope` find the package that this file belongs to, also in an environment without it."""
    root = os.path.dirname(os.path.dirname(_here))
    if importlib.machinery.PathFinder.find_spec("rankscope") is None:

        class Finder:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name != "rankscope":
                    return None
                return importlib.util.spec_from_file_location(
                    name, os.path.join(root, "__init__.py"), submodule_search_locations=[root]
                )

        sys.meta_path.append(Finder)


try:
    _run_the_hidden_one()
finally:
    if os.environ.get("RANKSCOPE_RUN_DIR") and not os.environ.get("RANKSCOPE_OFF"):
        try:
            _find_rankscope()
            from rankscope.capture import boot

            boot.arm()
        except Exception as error:  # a guest: the user's program starts whatever happens to us
            if os.environ.get("RANKSCOPE_DEBUG"):
                raise
            sys.stderr.write(f"rankscope: this process is not observed ({type(error).__name__}: {error})\n")
