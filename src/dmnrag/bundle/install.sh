#!/bin/sh
# Installs the bundle that this file came from, without any network. Needs Python @PYTHON@; PYTHON names another one.
#
#   tar -xf @ARCHIVE@ install.sh && sh install.sh [--prefix DIR] [--archive FILE] [--replace-index]
set -eu
python=${PYTHON:-$(command -v python@PYTHON@ || command -v python3 || echo python3)}
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo "none that runs")
if [ "$found" != "@PYTHON@" ]; then
    echo "error: this bundle is for Python @PYTHON@, and $python is $found; name one: PYTHON=/path/python@PYTHON@ sh $0" >&2
    exit 1
fi
exec "$python" - --archive "$(dirname "$0")/@ARCHIVE@" "$@" <<'END_OF_PROGRAM'
@PROGRAM@
END_OF_PROGRAM
