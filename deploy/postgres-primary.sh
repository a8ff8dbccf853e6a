#!/bin/sh
# Run once by the image of PostgreSQL, after it has made the primary's files: nothing is acknowledged any more that the
# standby does not have, and the standby may connect.
set -eu
psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" \
  -c "ALTER SYSTEM SET synchronous_standby_names = 'standby'"
echo "host replication $POSTGRES_USER all scram-sha-256" >>"$PGDATA/pg_hba.conf"
