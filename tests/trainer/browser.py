"""Chromium without a window, from its own root file system and without a network: how it draws a page."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

from lab.build.cache import cache_home, one_at_a_time
from lab.build.parts import Workshop
from lab.build.versions import load_pins

if TYPE_CHECKING:
    from pathlib import Path

# Which curves are drawn, how long they are on the screen, whether all of them lies inside their picture, and how.
LOOK = """
<script>
const view = {title: document.title, curves: [], rows: {}, wide: document.documentElement.scrollWidth > innerWidth};
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
  --disable-gpu --window-size=1100,2000 --dump-dom file:///page.html
"""


def browser_root() -> Path:
    """The root `browser` of lab/versions.yml, which `make parts` has built."""
    home = cache_home()
    with one_at_a_time(home, print):
        return Workshop(home, load_pins(), print, dry=False).root("browser") / "tree"


def look(page: Path, work: Path) -> dict[str, Any]:
    """What LOOK reports of a page; `work` is an empty folder."""
    (work / "page.html").write_text(page.read_text().replace("</body>", f"{LOOK}</body>"))
    env = {**os.environ, "ROOT": str(browser_root()), "WORK": str(work)}
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--propagation", "private", "sh", "-c", OPEN]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "<pre>" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    view: dict[str, Any] = json.loads(done.stdout.split("<pre>")[1].split("</pre>")[0])
    return view
