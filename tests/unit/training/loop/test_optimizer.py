import pytest

torch = pytest.importorskip("torch", reason="the training loop needs torch")

from quarry.formats.errors import InvalidSetting  # noqa: E402
from quarry.training.loop.optimizer import OptimizerSettings, learning_rate, set_learning_rate  # noqa: E402


def test_the_rate_grows_and_then_stays_or_falls() -> None:
    constant = OptimizerSettings(learning_rate=2.0, warmup_steps=4)
    assert [learning_rate(constant, step, 8) for step in range(8)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]
    linear = OptimizerSettings(learning_rate=2.0, warmup_steps=4, schedule="linear")
    assert [learning_rate(linear, step, 8) for step in range(8)] == [0.5, 1.0, 1.5, 2.0, 2.0, 1.5, 1.0, 0.5]


def test_groups_keep_their_factors() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [each], "factor": factor} for each, factor in zip(parameters, (1.0, 20.0), strict=True)]
    optimizer = torch.optim.AdamW(groups, lr=1.0)
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 10.0]


@pytest.mark.parametrize(
    "change", [{"learning_rate": 0.0}, {"schedule": "other"}, {"warmup_steps": -1}, {"max_norm": 0.0}]
)
def test_bad_settings_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        OptimizerSettings(**change)  # type: ignore[arg-type]
