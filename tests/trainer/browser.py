"""Chromium without a window, from its own root file system and without a network: how it draws a page."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lab.build.cache import cache_home, one_at_a_time
from lab.build.parts import Workshop
from lab.build.versions import load_pins

PICTURE = "picture.png"
# Which curves are drawn, how long they are on the screen, whether all of them lies inside their picture, and how.
LOOK = """
<script>
const whole = document.documentElement;
const view = {title: document.title, curves: [], rows: {}, wide: whole.scrollWidth > innerWidth,
  height: whole.offsetHeight};
for (const line of document.querySelectorAll("svg polyline")) {
  const own = line.getBoundingClientRect(), picture = line.ownerSVGElement.getBoundingClientRect();
  const style = getComputedStyle(line);
  view.curves.push({
    chart: line.closest("figure").id, name: line.dataset.name, length: line.getTotalLength(), stroke: style.stroke,
    shown: style.visibility === "visible" && parseFloat(style.strokeWidth) > 0 && own.width > 0,
    inside: own.left >= picture.left && own.right <= picture.right && own.top >= picture.top
      && own.bottom <= picture.bottom});
}
for (const table of document.querySelectorAll("table")) view.rows[table.id] = table.rows.length;
document.body.innerHTML = "<pre>" + JSON.stringify(view) + "</pre>";
</script>
"""
OPEN = """
set -e
mkdir "$WORK/upper" "$WORK/work" "$WORK/merged"
mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/merged"
mkdir -p "$WORK/merged/proc" "$WORK/merged/dev" "$WORK/merged/tmp"
mount -t proc proc "$WORK/merged/proc"
mount --bind /dev "$WORK/merged/dev"
cp "$WORK/page.html" "$WORK/merged/page.html"
exec env -i HOME=/tmp /usr/sbin/chroot "$WORK/merged" /usr/lib/chromium/chromium-headless-shell --no-sandbox \\
  --disable-gpu "$@" file:///page.html
"""


def browser_root() -> Path:
    """The root `browser` of lab/versions.yml, which `make parts` has built."""
    home = cache_home()
    with one_at_a_time(home, print):
        return Workshop(home, load_pins(), print, dry=False).root("browser") / "tree"


def drawn(html: str, *words: str) -> tuple[str, bytes]:
    """What Chromium prints of a page, and the picture that the words may ask for."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "page.html").write_text(html)
        env = {**os.environ, "ROOT": str(browser_root()), "WORK": str(work)}
        spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--propagation", "private"]
        command = [*spaces, "sh", "-c", OPEN, "sh", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        png = work / "upper" / PICTURE
        return done.stdout, png.read_bytes() if png.exists() else b""


def look(html: str, width: int = 1100) -> dict[str, Any]:
    """What LOOK reports of a page."""
    dom, _ = drawn(html.replace("</body>", f"{LOOK}</body>"), f"--window-size={width},2000", "--dump-dom")
    assert "<pre>" in dom, dom[-2000:]
    view: dict[str, Any] = json.loads(dom.split("<pre>")[1].split("</pre>")[0])
    return view


def picture(html: str, width: int) -> bytes:
    """A whole page as a PNG file."""
    size = f"--window-size={width},{look(html, width)['height']}"
    return drawn(html, "--hide-scrollbars", size, f"--screenshot=/{PICTURE}")[1]
