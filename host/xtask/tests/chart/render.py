"""Prints what Helm renders of a chart, as a JSON list of YAML texts.

Arguments: the directory of the chart, and values as JSON. Exits with 3 without Helm's library.
"""

import json
import sys

try:
    from helm_python.chart import Chart
except ImportError:
    sys.exit(3)

directory, values = sys.argv[1:]
with Chart.load(directory) as chart:
    templates = chart.render(values=json.loads(values), name="davit")
    definitions = [definition["data"] for definition in chart.crds]
print(json.dumps([*templates.values(), *definitions]))
