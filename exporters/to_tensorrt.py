"""Builds TensorRT engines ("plans") from a bundle's graph.

A plan fits one version of the library and one compute capability. TensorRT builds for the GPU it runs on;
TensorRT-RTX, the library for GeForce and workstation GPUs, can also build for a named compute capability without a
GPU, and the tests do. No engine has been run on a GPU yet, and none has been built by TensorRT itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from quarry.engine.encoding.runtimes.tensorrt_runner import PLAN_MODULES
from quarry.engine.process.cuda import get_cuda_target
from quarry.formats.bundle.encoder import EncoderBundle, load_bundle
from quarry.formats.bundle.folder import MODEL_NAME, QUERY_MODEL_NAME
from quarry.formats.bundle.plan import LIBRARIES, PlanProfile, PlanRecord, digest_plan, write_plan
from quarry.formats.errors import BackendUnavailable, InvalidSetting

__all__ = ["build_plan", "check_builder", "get_default_profiles"]

_PACKAGES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt-rtx-cu13"}
_PRECISIONS = ("fp16", "fp32")  # TensorRT's parser does not support graphs quantized for ONNX Runtime
_OLDEST = 10  # major version


def get_default_profiles(window: int) -> tuple[PlanProfile, ...]:
    """Return three profiles for a window of this many tokens: one short query, passages, and long texts.

    TensorRT tunes kernels for each profile's usual shape and reserves memory for its largest.
    """
    short, passage = min(64, window), min(256, window)
    return (
        PlanProfile((1, 1), (1, min(16, window)), (1, short)),
        PlanProfile((1, 1), (32, min(128, window)), (64, passage)),
        PlanProfile((1, 1), (32, min(256, window)), (64, window)),
    )


def build_plan(
    bundle: str | Path,
    *,
    target: str | None = None,
    library: str | None = None,
    profiles: Sequence[PlanProfile] | None = None,
    timing_cache: str | Path | None = None,
) -> PlanRecord:
    """Build the plan of a bundle for one compute capability and write it into the bundle's folder.

    Args:
        bundle: the folder of an encoder's bundle in fp16 or fp32. Networks are strongly typed: a plan computes in
            the precision of the graph.
        target: compute capability to build for, such as "sm89"; None: this machine's GPU, the only choice with
            TensorRT.
        library: "tensorrt" or "tensorrt-rtx"; None: the first that is installed.
        profiles: ranges of shapes; None: `get_default_profiles` of the bundle's window.
        timing_cache: for TensorRT: a file that keeps kernel timings between builds; created if it is missing.

    Raises:
        BackendUnavailable: the library is not installed, or there is no GPU and no target.
        InvalidSetting: the bundle's precision or the target is not supported.
        FormatError: the bundle is damaged.
    """
    opened = load_bundle(bundle)
    if opened.settings.precision not in _PRECISIONS:
        raise InvalidSetting(
            "TensorRT does not support this precision; export the checkpoint with --precision fp16",
            path=opened.path,
            expected=" or ".join(_PRECISIONS),
            actual=opened.settings.precision,
        )
    if QUERY_MODEL_NAME in opened.files:
        raise InvalidSetting("the bundle has a separate graph for queries", path=opened.path, expected="one graph")
    opened.verify_graph(MODEL_NAME)
    builder = _PlanBuilder(_choose_library(library), target)
    if timing_cache is not None and builder.library != "tensorrt":
        raise InvalidSetting(f"{builder.library} has no timing cache", expected="no timing_cache")
    chosen = tuple(profiles or get_default_profiles(opened.settings.window))
    plan = builder.build(opened, chosen, Path(timing_cache) if timing_cache else None)
    record = PlanRecord(
        identity=opened.identity,
        model_sha256=opened.files[MODEL_NAME].sha256,
        library=builder.library,
        version=builder.version,
        target=builder.target,
        precision=opened.settings.precision,
        profiles=chosen,
        file=digest_plan(plan),
    )
    write_plan(opened.path, record, plan)
    return record


def check_builder(target: str | None) -> None:
    """Find out before an export whether a plan can be built: whether there is a library, and a GPU or a target.

    Raises:
        BackendUnavailable, InvalidSetting: see `build_plan`.
    """
    _PlanBuilder(_choose_library(None), target)


def _choose_library(name: str | None) -> str:
    if name is not None and name not in LIBRARIES:
        raise InvalidSetting("unknown library", expected=" or ".join(LIBRARIES), actual=name)
    for candidate in [name] if name else LIBRARIES:
        try:
            import_module(PLAN_MODULES[candidate])
        except ImportError:
            continue
        return candidate
    packages = [_PACKAGES[candidate] for candidate in ([name] if name else LIBRARIES)]
    raise BackendUnavailable(
        "a library that builds TensorRT engines is not installed",
        expected=" or ".join(f"pip install {package}" for package in packages),
    )


class _PlanBuilder:
    """One library, set up to build for one compute capability."""

    def __init__(self, library: str, target: str | None) -> None:
        self.library = library
        self._trt: Any = import_module(PLAN_MODULES[library])
        self.version = str(self._trt.__version__)
        if int(self.version.split(".")[0]) < _OLDEST and library == "tensorrt":
            raise BackendUnavailable("TensorRT is too old", expected=f"{_OLDEST} or later", actual=self.version)
        self._capability = self._find_capability(target) if target else None
        self.target = target or _find_target()
        self._messages: list[str] = []

    def build(
        self, bundle: EncoderBundle, profiles: Sequence[PlanProfile], timing_cache: Path | None
    ) -> memoryview:
        """Parse the bundle's graph and build the plan."""
        builder = self._trt.Builder(_make_logger(self._trt, self._messages))
        network = builder.create_network(self._network_flags())
        parser = self._parse(network, bundle.model_path)
        config = builder.create_builder_config()
        for profile in profiles:
            config.add_optimization_profile(self._profile(builder, network, profile))
        if self._capability is not None:
            config.num_compute_capabilities = 1
            config.set_compute_capability(self._capability, 0)
        with self._timings(config, timing_cache):
            plan = builder.build_serialized_network(network, config)
        del parser  # it owned the network's weights until here
        if plan is None:
            raise self._failure("the engine cannot be built", bundle.model_path)
        return memoryview(plan)

    def _find_capability(self, target: str) -> object:
        """Return the library's value for a compute capability."""
        known = getattr(self._trt, "ComputeCapability", None)
        names = sorted(name.lower() for name in known.__members__ if name.startswith("SM")) if known else []
        if target not in names:
            raise InvalidSetting(
                f"{self.library} {self.version} does not build for this target",
                expected=", ".join(names) or "no target: it builds for the GPU it runs on",
                actual=target,
            )
        return known.__members__[target.upper()] if known else None

    def _network_flags(self) -> int:
        """Request strongly typed networks from TensorRT 10; later versions have no other kind."""
        flag = getattr(self._trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        return 0 if flag is None else 1 << int(flag)

    def _parse(self, network: Any, path: Path) -> object:  # noqa: ANN401
        """Parse the graph into the network; the parser that is returned owns its weights."""
        parser = self._trt.OnnxParser(network, _make_logger(self._trt, self._messages))
        if not parser.parse_from_file(str(path)):  # weights may be in separate files
            self._messages += [parser.get_error(number).desc() for number in range(parser.num_errors)]
            raise self._failure("the graph cannot be read", path)
        return parser

    def _profile(self, builder: Any, network: Any, profile: PlanProfile) -> object:  # noqa: ANN401
        made = builder.create_optimization_profile()
        for number in range(network.num_inputs):
            made.set_shape(network.get_input(number).name, profile.smallest, profile.usual, profile.largest)
        return made

    @contextmanager
    def _timings(self, config: Any, path: Path | None) -> Iterator[None]:  # noqa: ANN401
        """Use the timings of earlier builds and save those of this one."""
        if path is None:
            yield
            return
        cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
        config.set_timing_cache(cache, ignore_mismatch=False)
        yield
        path.write_bytes(config.get_timing_cache().serialize())

    def _failure(self, what: str, path: Path) -> InvalidSetting:
        reason = "; ".join(self._messages[-3:]) or "no reason given"
        return InvalidSetting(f"{self.library} {self.version}: {what}", path=path, actual=reason)


def _make_logger(trt: Any, messages: list[str]) -> Any:  # noqa: ANN401
    """Return a logger of the library that collects its errors."""

    class _Kept(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: object, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                messages.append(message)

    return _Kept()


def _find_target() -> str:
    """Return the compute capability of this machine's GPU."""
    target = get_cuda_target()
    if target is None:
        raise BackendUnavailable("there is no GPU to build a TensorRT engine for", expected="a GPU, or a target")
    return target
