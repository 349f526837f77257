"""The tiny corpus and network of the recipes, which are the largest user of this package."""

from recipes.tests.conftest import *  # noqa: F403 (fixtures)
