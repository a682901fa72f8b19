#!/bin/sh
# Installs into /opt/penstock while an image is built.
#   install.sh locked ROLE     what requirements-ROLE.lock names, by hash
#   install.sh own FOLDER...   Penstock's own packages
#   install.sh compile MODULE  what that imports: an executor's warm parent took 44 s to compile its own
set -eu
pip="/opt/build/bin/pip --python /opt/penstock/bin/python install -q --disable-pip-version-check --no-cache-dir --no-compile"
what=$1; shift
cd /src
case $what in
  # Sources are built with the locked tools; these are put into the environment and taken out again.
  locked) /opt/build/bin/pip wheel -q --disable-pip-version-check --no-cache-dir --no-build-isolation --no-deps \
            --require-hashes -r "deploy/requirements-$1.lock" -w /tmp/wheels
          $pip --no-deps --no-index /tmp/wheels/*.whl
          rm -rf /tmp/wheels
          cd /opt/penstock/lib/python3*/site-packages
          find . -type d -name tests -prune -exec rm -rf {} +
          rm -rf numpy/f2py numpy/distutils
          find pygments/lexers -name '[a-z]*.py' ! -name python.py -delete
          find . '(' -name '*.pyi' -o -name '*.pxd' -o -name '*.a' -o -name '*.h' ')' -delete ;;
  own)    for folder in "$@"; do
            /opt/build/bin/pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps "./$folder" -w /tmp/own
          done
          $pip --no-deps --no-index /tmp/own/*.whl
          rm -rf /tmp/own ;;
  compile) PYTHONDONTWRITEBYTECODE='' /opt/penstock/bin/python -c "import importlib, sys
for module in sys.argv[1:]: importlib.import_module(module)" "$@" ;;
  *)      echo "found '$what', expected locked, own or compile" >&2; exit 2 ;;
esac
