import io

from rankscope.base.plugins import load_all
from rankscope.views import exporters
from rankscope.views.exporter import Exporter


class FirstLine(Exporter):
    name = "first-line"

    def export(self, report, out):
        out.write(f"{report.verdict}\n")


def test_an_exporter_writes_the_report_to_where_it_is_told(made_up):
    out = io.StringIO()

    FirstLine().export(made_up.HEALTHY, out)

    assert out.getvalue() == "healthy\n"


def test_every_file_of_the_folder_is_one_exporter_named_like_it():
    assert [one.name.replace("-", "_") for one in load_all(exporters, Exporter)] == [
        one.__module__.rpartition(".")[2] for one in load_all(exporters, Exporter)
    ]
