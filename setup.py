"""Map the packages to their folders: `quarry` is src/quarry, `quarry.engine` and the others are at the top."""

from setuptools import find_packages, setup

TOP = ["distributed", "engine", "exporters", "formats", "integrations", "readers", "server", "testing", "training"]
packages = find_packages(include=[pattern for name in TOP for pattern in (name, f"{name}.*")])

setup(
    packages=["quarry", *(f"quarry.{each}" for each in packages)],
    package_dir={"quarry": "src/quarry"} | {f"quarry.{name}": name for name in TOP},
)
