"""The papers' tables and figures: ablations, layer sweeps, divergences, frequency bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal._lazy import lazy_names

if TYPE_CHECKING:
    from glocal.analysis.ablation import Ablation
    from glocal.analysis.bands import BandComparison
    from glocal.analysis.divergence import Divergence, expert_divergence
    from glocal.analysis.layers import LayerSweep, layer_table
    from glocal.analysis.study import Study, StudyData, StudyView
    from glocal.analysis.tables import VariantTable, load_table, resolve, select, table_names

_MODULES = {
    "Ablation": "ablation",
    "BandComparison": "bands",
    "Divergence": "divergence",
    "LayerSweep": "layers",
    "Study": "study",
    "StudyData": "study",
    "StudyView": "study",
    "VariantTable": "tables",
    "expert_divergence": "divergence",
    "layer_table": "layers",
    "load_table": "tables",
    "resolve": "tables",
    "select": "tables",
    "table_names": "tables",
}

__all__ = [
    "Ablation",
    "BandComparison",
    "Divergence",
    "LayerSweep",
    "Study",
    "StudyData",
    "StudyView",
    "VariantTable",
    "expert_divergence",
    "layer_table",
    "load_table",
    "resolve",
    "select",
    "table_names",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
