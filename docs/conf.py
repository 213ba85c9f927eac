"""Configuration of the site: Sphinx reads the Markdown of this folder with MyST, and Furo lays it out."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import site_pages  # noqa: E402  (found by the path above)

from corpora.storage.manifest import farspan_version  # noqa: E402

project = "farspan"
author = "the farspan developers"
version = release = farspan_version()
extensions = ["myst_parser", "sphinx_copybutton", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
smartquotes_action = "qe"  # quotes and ellipses; a dash would make –flag of --flag
highlight_language = "none"  # a block without a language is no Python
html_theme = "furo"
html_logo = html_favicon = "_static/logo.svg"
html_title = f"farspan {version}"
# links to edit a page need the address of the repository, which a checkout does not know
html_theme_options = {
    "source_repository": os.environ.get("FARSPAN_REPOSITORY", ""),
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output) > div.highlight > pre"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_display_short_literal_types = True
default_role = "code"  # help texts have single backticks
napoleon_google_docstring = True
napoleon_use_ivar = True
# pages of parts that are not installed, such as `view.md`, may be missing; JSON and TOML of the pages have comments and
# ellipses
suppress_warnings = ["toc.empty_glob", "misc.highlighting_failure"]
nitpicky = False


def setup(app):
    """Write the pages that follow from the code before the others are read; these alone cannot be edited."""
    app.connect("builder-inited", lambda _: site_pages.write_all(HERE))
    app.connect("html-page-context", _forbid_edits, priority=900)


def _forbid_edits(app, pagename, templatename, context, doctree):
    if pagename.startswith("generated/") or not os.environ.get("FARSPAN_REPOSITORY"):
        context["page_source_suffix"] = ""
