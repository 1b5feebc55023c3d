"""What small screens ask of a page: pictures that open at full size, and commands that break between words alone."""

import re
from typing import Any

PICTURE = re.compile(r'<img [^>]*?src="([^"]+)"[^>]*>')
COMMAND = re.compile(r"(?<!<span></span>)<code>[^<]*-[^<]*</code>")  # a block of code has an empty span before it
HYPHENATED = re.compile(r"[^\s<>]*-[^\s<>]*(?=[\s<])")


def on_page_content(html: str, **_: Any) -> str:
    """Make pictures links to themselves, and keep words with hyphens, as flags are, whole."""
    html = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', html)
    return COMMAND.sub(lambda found: HYPHENATED.sub(r'<span class="whole">\g<0></span>', found[0]), html)
