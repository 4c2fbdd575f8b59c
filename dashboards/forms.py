"""The few forms of panels, so that all look alike: numbers, curves, bars, states, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import bargauge, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.common import GraphThresholdsStyleConfig, ReduceDataOptions, StackingConfig, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, DatasourceVariable, FieldColor, QueryVariable, Row, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BarGaugeValueMode,
    BigValueColorMode,
    BigValueGraphMode,
    GraphGradientMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Panel,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableHide,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"
Steps = Sequence[tuple[float | None, str]]
"""From which value on which colour; the first has no value."""
PLAIN: Steps = ((None, BLUE),)
BAD_ABOVE_NOTHING: Steps = ((None, GREEN), (0.000001, RED))
DOUBTFUL_ABOVE_NOTHING: Steps = ((None, GREEN), (0.000001, ORANGE))
NEARLY_FULL: Steps = ((None, GREEN), (0.7, YELLOW), (0.9, ORANGE), (1.0, RED))


Panels = list[Builder[Panel]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One expression and how its series are called."""

    expr: str
    legend: str = "__auto"


def dashboard(uid: str, title: str, description: str, variables: Sequence[QueryVariable] = ()) -> Dashboard:
    made = (
        Dashboard(f"Gateway / {title}")
        .uid(f"gateway-{uid}")
        .description(description)
        .tags(["model-gateway"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(DashboardLink("Dashboards of the gateway").type(DashboardLinkType.DASHBOARDS).tags(["model-gateway"]).as_dropdown(True).keep_time(True))
        .with_variable(DatasourceVariable("datasource").label("Data").type("prometheus"))
    )
    for variable in variables:
        made = made.with_variable(variable)
    return made


def choice(name: str, label: str, metric: str, of: str = "") -> QueryVariable:
    """All of the values of a label, unless somebody chooses."""
    return (
        QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {of or name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .hide(VariableHide.DONT_HIDE)
    )


def row(title: str) -> Row:
    return Row(title)


def number(
    title: str,
    description: str,
    ask: Ask,
    *,
    unit: str = "short",
    steps: Steps = PLAIN,
    span: int = 4,
    words: Mapping[str, tuple[str, str]] | None = None,
    decimals: int | None = None,
) -> stat.Panel:
    """One number, large. `words`: what values are called, and their colours."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(4)
        .color_mode(BigValueColorMode.BACKGROUND if steps is not PLAIN or words else BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE if words else BigValueGraphMode.AREA)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(steps))
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .with_target(_query(ask))
    )
    if decimals is not None:
        panel = panel.decimals(decimals)
    return panel.mappings([_words(words)]) if words else panel


def curves(
    title: str,
    description: str,
    *asks: Ask,
    unit: str = "short",
    stacked: bool = False,
    steps: Steps = (),
    span: int = 12,
    highest: float | None = None,
    colors: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(8)
        .min(0)
        .line_width(2 if not stacked else 1)
        .fill_opacity(55 if stacked else 10)
        .gradient_mode(GraphGradientMode.OPACITY)
        .show_points(VisibilityMode.NEVER)
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["mean", "max", "lastNotNull"])
            .sort_by("Max")
            .sort_desc(True)
        )
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if stacked:
        panel = panel.stacking(StackingConfig().mode(StackingMode.NORMAL))
    if steps:
        panel = panel.thresholds(_thresholds(steps)).thresholds_style(_line())
    if highest is not None:
        panel = panel.max(highest)
    for name, color in (colors or {}).items():
        panel = panel.override_by_name(name, [_fixed(color)])
    for ask in asks:
        panel = panel.with_target(_query(ask))
    return panel


def bars(
    title: str, description: str, ask: Ask, *, unit: str = "percentunit", steps: Steps = NEARLY_FULL, span: int = 12, height: int = 8, highest: float | None = 1
) -> bargauge.Panel:
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(height)
        .min(0)
        .orientation(VizOrientation.HORIZONTAL)
        .display_mode(BarGaugeDisplayMode.GRADIENT)
        .value_mode(BarGaugeValueMode.COLOR)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(steps))
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .with_target(_query(ask, instant=True))
    )
    return panel if highest is None else panel.max(highest)


def states(title: str, description: str, ask: Ask, *, words: Mapping[str, tuple[str, str]], span: int = 12, height: int = 8) -> statetimeline.Panel:
    """What was so when: one strip a series."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(span)
        .height(height)
        .merge_values(True)
        .row_height(0.8)
        .show_value(VisibilityMode.AUTO)
        .legend(VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(False))
        .mappings([_words(words)])
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds(PLAIN))
        .with_target(_query(ask))
    )


def listing(
    title: str, description: str, ask: Ask, *, columns: Mapping[str, str], value: str, unit: str = "short", span: int = 12, height: int = 8
) -> table.Panel:
    """Series as rows: `columns` are labels and their headings, in this order."""
    order = {name: place for place, name in enumerate((*columns, "Value"))}
    organize = {
        "indexByName": order,
        "renameByName": {**columns, "Value": value},
        "excludeByName": {name: True for name in ("Time", "__name__", "instance", "job") if name not in columns},
    }
    return (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(height)
        .filterable(True)
        .with_target(_query(ask, instant=True).format(PromQueryFormat.TABLE))
        .with_transformation(DataTransformerConfig(id_val="organize", options=organize))
    )


def _query(ask: Ask, *, instant: bool = False) -> Dataquery:
    query = Dataquery().expr(ask.expr).legend_format(ask.legend)
    return query.instant() if instant else query.range()


def _thresholds(steps: Steps) -> ThresholdsConfig:
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(value=value, color=color) for value, color in steps])


def _line() -> GraphThresholdsStyleConfig:
    return GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)


def _fixed(color: str) -> DynamicConfigValue:
    return DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})


def on_the_right(unit: str) -> list[DynamicConfigValue]:
    """For a curve of another unit than its neighbours."""
    return [DynamicConfigValue(id_val="unit", value=unit), DynamicConfigValue(id_val="custom.axisPlacement", value="right")]


def _words(words: Mapping[str, tuple[str, str]]) -> ValueMap:
    return ValueMap(options={value: ValueMappingResult(text=text, color=color, index=index) for index, (value, (text, color)) in enumerate(words.items())})
