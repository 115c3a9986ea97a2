"""Random tables: a row is encoded by itself, and a schema survives its file."""

import json

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livi.tables import Table, TableError
from livi.tables.detection import column_kinds, learn_schema
from livi.tables.encoding import encode
from livi.tables.schema import Schema
from livi.tables.values import texts


def examples(count):
    """Random inputs, the same ones on every run of one version of hypothesis, however slow the machine."""
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=quiet, database=None)


@st.composite
def tables(draw):
    """A table with a target y, numbers, dates and categories, gaps included."""
    rows = draw(st.integers(6, 12))
    pools = [["1", "2.5", "-3", ""], ["2020-01-01", "2021-02-03", ""], ["u", "v", "w", ""], ["True", "False"]]
    cells = {
        f"c{place}": texts([draw(st.sampled_from(pool)) for _ in range(rows)])
        for place, pool in enumerate(draw(st.lists(st.sampled_from(pools), min_size=1, max_size=4)))
    }
    return Table("some.csv", cells | {"y": texts([str(i) for i in range(rows)])}, np.arange(2, rows + 2))


@examples(60)
@given(table=tables(), data=st.data())
def test_a_row_is_encoded_by_itself_and_always_the_same(table, data):
    kinds = column_kinds(table, [name for name in table.columns if name != "y"])
    try:
        schema = learn_schema(table, "y", "regression", kinds)
    except TableError:
        return
    features = encode(table, schema, lambda _: None)
    assert features.shape == (len(table), len(schema.features))
    assert np.isfinite(features).all()
    order = np.array(data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=5)))
    np.testing.assert_array_equal(encode(table.rows(order), schema, lambda _: None), features[order])


@examples(60)
@given(table=tables())
def test_a_schema_survives_json(table):
    try:
        schema = learn_schema(table, "y", "regression", column_kinds(table, [n for n in table.columns if n != "y"]))
    except TableError:
        return
    assert Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False))) == schema
