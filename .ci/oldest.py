#!/usr/bin/env python3
"""No dependency in Cargo.lock needs a newer Rust than the one in Cargo.toml's `rust-version`.

Clippy looks for newer parts of the standard library (`incompatible_msrv`). Neither is a build: `just oldest` is one, where
that toolchain can be had.
"""

import json
import subprocess
import sys


def version(text):
    return tuple(int(part) for part in (text + ".0").split(".")[:2])


command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
(own,) = (package for package in packages if package["name"] == "shardstream")
newer = [
    f"{package['name']} {package['version']} needs Rust {package['rust_version']}"
    for package in packages
    if package["rust_version"] and version(package["rust_version"]) > version(own["rust_version"])
]
print(f"{len(packages)} packages, Rust {own['rust_version']}")
if newer:
    sys.exit("\n".join(newer))
