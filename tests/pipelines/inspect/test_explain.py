"""Explanations of tasks, as ``farspan tasks`` prints them."""

from objectives.tasks.presets import PRESETS


def test_tasks_and_presets_are_listed(run):
    status, out, _ = run("tasks")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("text_to_text: documents, and perhaps a query,")
    assert [line.split(":")[0].strip() for line in lines[1 : 1 + len(PRESETS)]] == list(PRESETS)
    assert '  led: query="first", middle="<eos>", separator=null, global_attention="bos"' in out


def test_a_preset_is_explained_with_all_its_values(run):
    status, out, _ = run("tasks", "pegasus_x")
    assert status == 0
    assert "    leftover: part of its share that a short document does not need" in out
    assert "values with preset pegasus_x:" in out
    assert '  middle = "\\n\\n"\n' in out
    assert "  begin = false\n" in out
    assert "  block = 1024\n" in out


def test_a_task_unlike_any_other_is_answered_with_all_of_them(run):
    _, _, errors = run("tasks", "q")
    assert errors.startswith("farspan: no task or preset is called 'q'; presets: bart_ls, bart_ls_summary, ")
    assert errors.endswith(", scrolls; installed: text_to_text\n")


def test_an_unknown_task_is_answered_with_the_nearest(run):
    status, _, errors = run("tasks", "pegasusx")
    assert status == 1
    assert (
        errors
        == "farspan: no task or preset is called 'pegasusx' (did you mean 'pegasus_x'?); installed: text_to_text\n"
    )
