"""The image of the host under test, made of the build tree TRANCHE_BUILD (build/dev), and where things are. Imported by the tools of this folder."""
import hashlib
import os
import pathlib
import re
import subprocess

TOOLS = pathlib.Path(__file__).resolve().parent
CLUSTER = TOOLS.parent
REPOSITORY = CLUSTER.parent.parent
OUT = pathlib.Path(os.environ.get("TRANCHE_NODE_DIR", REPOSITORY / "build/cluster")).resolve()
BUILD = pathlib.Path(os.environ.get("TRANCHE_BUILD", REPOSITORY / "build/dev")).resolve()
ARCHIVE = OUT / "bin-test/tranched.tar"
IMAGE = REPOSITORY / "deploy/image"
# The image's, and of the tests that run the host as a process.
PROGRAMS = [f"bin/{name}" for name in re.search(r"^programs=\((.*)\)$", (IMAGE / "build").read_text(), re.M)[1].split()]
LIBRARIES = ["backends/vnic_tc.so", "backends/vnic_tc.backend.json", "backends/null_backend.so"]


def build_image():
    """Makes the host's image, named after what it is made of, and returns its name; None where nothing is built."""
    if missing := [name for name in PROGRAMS + LIBRARIES if not (BUILD / name).exists()]:
        print(f"{BUILD} lacks {', '.join(missing)}; `make test-cluster` and `make cluster-demo` build it first", flush=True)
        return None
    digest = hashlib.sha256()
    for name in PROGRAMS + LIBRARIES:
        digest.update((BUILD / name).read_bytes())
    for source in sorted(IMAGE.iterdir()):
        digest.update(source.read_bytes())
    name, written = f"tranche.dev/tranched:{digest.hexdigest()[:12]}", ARCHIVE.with_suffix(".name")
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    if not ARCHIVE.exists() or not written.exists() or written.read_text() != name:
        subprocess.run([IMAGE / "build", BUILD, ARCHIVE, name], check=True, stdout=subprocess.DEVNULL)
        written.write_text(name)
    return name
