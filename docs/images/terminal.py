#!/usr/bin/env python3
"""Records commands in a terminal of 100 columns as one SVG that shows one after the other.

usage: terminal.py OUT.svg LINES COMMAND...     (whylate in PATH; LINES of each output are kept)

docs/images/terminal.svg: terminal.py terminal.svg 21 'whylate explain fixtures/traces/functions-rt-6.1.dat' 'whylate fix --show arm'
'whylate report loop'. `arm` is a search that moved a thread away, `loop` a watch of a loop that writes a log."""

import html
import re
import subprocess
import sys

COLUMNS, SECONDS = 100, 9
WIDTH, HEIGHT, LEFT, TOP = 8.0, 17, 14, 44
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea"}


def recorded(command):
    shell = f"stty cols {COLUMNS} rows 40; {command}"
    done = subprocess.run(["script", "-qec", shell, "/dev/null"], capture_output=True, text=True, check=False)
    return done.stdout.replace("\r", "").split("\n")


def spans(line):
    """Pieces of a line with their style, from the codes of the terminal."""
    style, found = {}, []
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        codes = re.fullmatch(r"\x1b\[([0-9;]*)m", piece)
        if not codes:
            if piece and found and found[-1][1] == style:
                found[-1][0] += piece
            elif piece:
                found.append([piece, dict(style)])
            continue
        for code in codes[1].split(";"):
            if code in ("", "0"):
                style.clear()
            elif code == "1":
                style["font-weight"] = "bold"
            elif code == "2":
                style["fill"] = "#8b949e"
            elif code in COLOURS:
                style["fill"] = COLOURS[code]
    return found


def drawn(lines):
    rows = []
    for number, line in enumerate(lines):
        column = 0
        for text, style in spans(line):
            x, y = LEFT + column * WIDTH, TOP + number * HEIGHT
            column += len(text)
            if text.strip():
                css = ";".join(f"{name}:{value}" for name, value in style.items())
                css = f' style="{css}"' if css else ""
                length = f' textLength="{len(text) * WIDTH:g}"'
                rows.append(f'<text x="{x:g}" y="{y}"{length}{css}>{html.escape(text)}</text>')
    return "\n".join(rows)


def main():
    out, kept, commands = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    whole, scenes = SECONDS * len(commands), []
    for number, command in enumerate(commands):
        lines = [f"\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m", *recorded(command)[:kept]]
        delay = number * SECONDS
        scenes.append(f'<g class="scene" style="animation-delay:{delay - whole if number else 0}s">{drawn(lines)}</g>')
    width, height = LEFT * 2 + COLUMNS * WIDTH, TOP + (kept + 1) * HEIGHT
    share = 100 / len(commands)
    style = f"""text{{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}}
.scene{{animation:scene {whole}s infinite;opacity:0}}
@keyframes scene{{0%,{share - 1:.1f}%{{opacity:1}}{share:.1f}%,99.9%{{opacity:0}}100%{{opacity:1}}}}"""
    dots = "".join(f'<circle cx="{18 + 18 * n}" cy="16" r="5" fill="{c}"/>' for n, c in enumerate(["#ff5f56", "#ffbd2e", "#27c93f"]))
    with open(out, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" xml:space="preserve" role="img">\n'
            f"<style>{style}</style>\n"
            f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{dots}\n' + "\n".join(scenes) + "\n</svg>\n"
        )


if __name__ == "__main__":
    main()
