"""The README.md of a trained checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from quarry.training.recipe import Recipe

__all__ = ["model_card"]


def model_card(recipe: Recipe, n_examples: Mapping[str, int]) -> str:
    """Say what the weights were made of: checkpoint, data with licences, objective, and the recipe itself.

    Args:
        recipe: the recipe of the run.
        n_examples: the number of examples of each source by name.
    """
    total = sum(each.weight for each in recipe.data)
    rows = [
        f"| {each.name} | {n_examples[each.name]:,} | {each.weight / total:.3g} "
        f"| {recipe.batch_size(each)} | {each.licence} | {each.origin} |"
        for each in recipe.data
    ]
    teachers = ", ".join(each.name for each in recipe.teachers) or "none"
    kind = "reranker" if recipe.is_reranker else "text encoder"
    return "\n".join(
        [
            "---",
            f"license: {recipe.output.licence}",
            f"model_name: {recipe.output.name}",
            "---",
            f"# {recipe.output.name}",
            "",
            f"A {kind} for Quarry, trained from `{recipe.model.checkpoint.name}` for the objective "
            f"`{recipe.objective.name}`: {recipe.training.steps} steps. Teachers: {teachers}.",
            "",
            "## Training data",
            "",
            "| source | examples | share of steps | queries in a step | licence | origin |",
            "| --- | ---: | ---: | ---: | --- | --- |",
            *rows,
            "",
            "## Recipe",
            "",
            "```toml",
            recipe.text.rstrip(),
            "```",
            "",
        ]
    )
