#!/bin/sh
# Installs into /opt/penstock while an image is built.
#   install.sh locked ROLE     what requirements-ROLE.lock names, by hash
#   install.sh own FOLDER...   Penstock's own packages
set -eu
# With compiled modules: a warm parent that had to compile its own took 44 s.
pip="/opt/build/bin/pip --python /opt/penstock/bin/python install -q --disable-pip-version-check --no-cache-dir"
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
          find . '(' -name '*.pyi' -o -name '*.pxd' -o -name '*.a' -o -name '*.h' ')' -delete ;;
  own)    for folder in "$@"; do
            /opt/build/bin/pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps "./$folder" -w /tmp/own
          done
          $pip --no-deps --no-index /tmp/own/*.whl
          rm -rf /tmp/own ;;
  *)      echo "found '$what', expected locked or own" >&2; exit 2 ;;
esac
