#!/bin/sh
# Run in the image of PostgreSQL: copy the primary at the first start, then follow it.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  mkdir -p -m 0700 "$PGDATA"
  until pg_basebackup -D "$PGDATA" -R -X stream -c fast \
    -d "host=database user=abridged application_name=standby"; do sleep 1; done
fi
exec postgres
