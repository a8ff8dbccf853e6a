"""The statements of a log in PostgreSQL. Parameters are named, and go in binary form (`b`).

Positions are given out under the lock of the log's row, which a group takes in its first statement. The next ones are
statements of their own: each sees all that was committed before the lock was granted (READ COMMITTED).
"""

from __future__ import annotations

from abridged.eventlog.event_rows import ROW_COLUMNS
from abridged.eventlog.stored_event import READ_COLUMNS, SEAL_COLUMNS

# A group of appends

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

LIMITS = """
SELECT set_config('lock_timeout', %(lock_timeout)b::text, true),
       set_config('statement_timeout', %(statement_timeout)b::text, true),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)b::text, true),
       set_config('synchronous_commit', CASE WHEN setting IN ('off', 'local') THEN 'on' ELSE setting END, true)
FROM current_setting('synchronous_commit') AS setting
"""
"""Limits of the transaction alone: behind a pooler, a session's settings would be those of its next user too."""

LOCK = "SELECT log_id, key FROM logs WHERE log = %(log)b FOR UPDATE"

ENDS = """
SELECT (SELECT coalesce(max(position), 0) FROM events WHERE log = %(log)b),
       (SELECT coalesce(max(id), 0) FROM streams WHERE log = %(log)b)
"""

TYPES = "SELECT name, id FROM types WHERE log = %(log)b"

TIPS = """
SELECT s.namespace, s.name, s.id, e.version, e.chain, e.time_us
FROM unnest(%(namespaces)b::text[], %(names)b::text[]) AS asked (namespace, name)
JOIN streams AS s ON s.log = %(log)b AND s.namespace = asked.namespace AND s.name = asked.name
CROSS JOIN LATERAL (
    SELECT version, chain, time_us FROM events WHERE log = s.log AND stream = s.id ORDER BY version DESC LIMIT 1
) AS e
"""
"""The newest event of each stream that is asked for."""

KNOWN_EVENTS = """
SELECT asked.stream, asked.event_id, e.position, e.version, e.content_hash
FROM (
    SELECT s.id AS stream, wanted.event_id
    FROM unnest(%(namespaces)b::text[], %(names)b::text[], %(event_ids)b::bytea[]) AS wanted (namespace, name, event_id)
    JOIN streams AS s ON s.log = %(log)b AND s.namespace = wanted.namespace AND s.name = wanted.name
) AS asked
CROSS JOIN LATERAL (
    SELECT position, version, content_hash FROM events
    WHERE log = %(log)b AND stream = asked.stream AND event_id = asked.event_id
    LIMIT 1
) AS e
"""
"""LIMIT makes the database look each id up: it would rather read the whole table for a large group."""

KNOWN_REQUESTS = """
SELECT asked.stream, asked.key, r.content_hash, r.first_position, r.last_position, r.last_version
FROM (
    SELECT s.id AS stream, wanted.key
    FROM unnest(%(namespaces)b::text[], %(names)b::text[], %(keys)b::bytea[]) AS wanted (namespace, name, key)
    JOIN streams AS s ON s.log = %(log)b AND s.namespace = wanted.namespace AND s.name = wanted.name
) AS asked
CROSS JOIN LATERAL (
    SELECT content_hash, first_position, last_position, last_version FROM requests
    WHERE log = %(log)b AND stream = asked.stream AND key = asked.key
    LIMIT 1
) AS r
"""

INSERT_TYPES = """
INSERT INTO types (log, id, name)
SELECT %(log)b, * FROM unnest(%(ids)b::integer[], %(names)b::text[])
"""

INSERT_STREAMS = """
INSERT INTO streams (log, id, namespace, name)
SELECT %(log)b, * FROM unnest(%(ids)b::bigint[], %(namespaces)b::text[], %(names)b::text[])
"""

INSERT_EVENTS = """
INSERT INTO events (
    log, position, stream, version, event_id, type, schema_version, time_us, trace_context,
    content_hash, commitment, chain, salt, payload
)
SELECT %(log)b, * FROM unnest(
    %(position)b::bigint[], %(stream)b::bigint[], %(version)b::bigint[], %(event_id)b::bytea[], %(type)b::integer[],
    %(schema_version)b::bigint[], %(time_us)b::bigint[], %(trace_context)b::text[],
    %(content_hash)b::bytea[], %(commitment)b::bytea[], %(chain)b::bytea[], %(salt)b::bytea[], %(payload)b::bytea[]
)
"""

BLANK = """
UPDATE events AS e SET payload = blanked.payload, salt = blanked.salt, content_hash = blanked.content_hash
FROM unnest(%(payload)b::bytea[], %(salt)b::bytea[], %(content_hash)b::bytea[], %(position)b::bigint[])
AS blanked (payload, salt, content_hash, position)
WHERE e.log = %(log)b AND e.position = blanked.position
"""

VERSION_AT = """
SELECT max(version) FROM events WHERE log = %(log)b
AND stream = (SELECT stream FROM events WHERE log = %(log)b AND position = %(position)b)
"""

BLANK_REQUESTS = """
UPDATE requests AS r SET content_hash = ''
FROM (SELECT min(position) AS first, max(position) AS last FROM unnest(%(position)b::bigint[]) AS position) AS blanked
WHERE r.log = %(log)b AND r.last_position >= blanked.first AND r.first_position <= blanked.last
AND r.stream = (SELECT e.stream FROM events AS e WHERE e.log = %(log)b AND e.position = blanked.first)
"""

INSERT_REQUESTS = """
INSERT INTO requests (log, stream, key, content_hash, first_position, last_position, last_version)
SELECT %(log)b, * FROM unnest(
    %(stream)b::bigint[], %(key)b::bytea[], %(content_hash)b::bytea[],
    %(first_position)b::bigint[], %(last_position)b::bigint[], %(last_version)b::bigint[]
)
"""

NOTIFY = "SELECT pg_notify(%(channel)b, %(sender)b)"

COMMIT = "COMMIT"

ROLLBACK = "ROLLBACK"

# Leases

_ASKED = """
SELECT * FROM unnest(%(namespaces)b::text[], %(names)b::text[], %(tokens)b::bigint[]) AS asked (namespace, name, token)
"""
_FROM_NOW = "clock_timestamp() + make_interval(secs => %(seconds)b::double precision)"

HOLD = f"""
INSERT INTO leases (log, namespace, name, token, expires_at)
SELECT %(log)b, asked.*, {_FROM_NOW} FROM ({_ASKED}) AS asked
ON CONFLICT (log, namespace, name) DO UPDATE SET token = excluded.token, expires_at = {_FROM_NOW}
WHERE leases.token < excluded.token
OR (leases.token = excluded.token AND leases.expires_at > clock_timestamp())
RETURNING namespace, name
"""  # noqa: S608 - of constants
"""The clock is read when the row is locked, which another process may hold for a while."""

LAPSED = f"""
WITH asked AS ({_ASKED}), new AS (
    INSERT INTO leases (log, namespace, name, token, expires_at)
    SELECT %(log)b, asked.*, {_FROM_NOW} FROM asked
    ON CONFLICT DO NOTHING
)
SELECT l.namespace, l.name, l.token
FROM leases AS l JOIN asked ON asked.namespace = l.namespace AND asked.name = l.name
WHERE l.log = %(log)b AND l.expires_at <= clock_timestamp()
"""  # noqa: S608 - of constants

DROP = f"""
DELETE FROM leases AS l USING ({_ASKED}) AS asked
WHERE l.log = %(log)b AND l.namespace = asked.namespace AND l.name = asked.name AND l.token <= asked.token
"""  # noqa: S608 - of constants

FORGET = """
DELETE FROM leases WHERE (log, namespace, name) IN (
    SELECT log, namespace, name FROM leases
    WHERE log = %(log)b AND expires_at < clock_timestamp() - make_interval(secs => %(seconds)b::double precision)
    LIMIT %(limit)b
    FOR UPDATE SKIP LOCKED
)
"""
"""The statement waits for no process that renews or takes one of them."""

# Reads

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

HEAD = "SELECT coalesce(max(position), 0) FROM events WHERE log = %(log)b"

_PAGE = f"""
SELECT {ROW_COLUMNS}{{seals}}
FROM (
    SELECT *, row_number() OVER place AS place, sum(coalesce(octet_length(payload), 0)) OVER place AS bytes
    FROM events
    WHERE log = %(log)b AND {{condition}}
    WINDOW place AS (ORDER BY {{order}} ROWS UNBOUNDED PRECEDING)
    ORDER BY {{order}}
    LIMIT %(limit)b
) AS e
WHERE e.place <= 2 OR e.bytes - coalesce(octet_length(e.payload), 0) <= %(bytes_max)b
ORDER BY {{order}}
"""  # noqa: S608 - of constants
"""Rows up to the first that the bytes have no room for, which is not before the second; sizes are added up without
reading the payloads."""

_OF_STREAM = """
stream = (SELECT id FROM streams WHERE log = %(log)b AND namespace = %(namespace)b AND name = %(name)b)
"""
_OF_WINDOW = "position > %(start)b AND position <= %(end)b"
_OF_NAMESPACE = """
(SELECT o.namespace FROM streams AS o WHERE o.log = events.log AND o.id = events.stream) = %(namespace)b
"""
"""Asked of each event in order: as a join, the database would rather read all events of the namespace's streams."""

STREAM = {
    False: _PAGE.format(condition=f"{_OF_STREAM} AND version > %(after)b", order="version", seals=SEAL_COLUMNS),
    True: _PAGE.format(condition=f"{_OF_STREAM} AND version < %(after)b", order="version DESC", seals=SEAL_COLUMNS),
}
"""Events of a stream with their seals by version, forward and backward."""

WINDOW = {
    False: _PAGE.format(condition=_OF_WINDOW, order="position", seals=""),
    True: _PAGE.format(condition=_OF_WINDOW, order="position DESC", seals=""),
}
"""Events by position, forward and backward."""

NAMESPACE_WINDOW = {
    False: _PAGE.format(condition=f"{_OF_WINDOW} AND {_OF_NAMESPACE}", order="position", seals=""),
    True: _PAGE.format(condition=f"{_OF_WINDOW} AND {_OF_NAMESPACE}", order="position DESC", seals=""),
}
"""Events of one namespace by position, forward and backward."""

STREAM_NAMES = "SELECT id, namespace, name FROM streams WHERE log = %(log)b AND id = ANY(%(numbers)b::bigint[])"

TYPE_NAMES = "SELECT id, NULL, name FROM types WHERE log = %(log)b AND id = ANY(%(numbers)b::bigint[])"

COUNT_BETWEEN = f"SELECT count(*) FROM events WHERE log = %(log)b AND {_OF_WINDOW}"  # noqa: S608 - of constants

STREAM_VERSION = f"SELECT coalesce(max(version), 0) FROM events WHERE log = %(log)b AND {_OF_STREAM}"  # noqa: S608 - of constants

NAMESPACE_HEAD = """
SELECT coalesce(max(e.position), 0)
FROM streams AS s
CROSS JOIN LATERAL (
    SELECT position FROM events WHERE log = s.log AND stream = s.id ORDER BY version DESC LIMIT 1
) AS e
WHERE s.log = %(log)b AND s.namespace = %(namespace)b
"""
"""The head of a namespace: each of its streams is asked for its newest event."""

NAMESPACE_HEAD_SINCE = f"""
SELECT coalesce((
    SELECT position FROM events
    WHERE log = %(log)b AND {_OF_WINDOW} AND {_OF_NAMESPACE}
    ORDER BY position DESC
    LIMIT 1
), 0)
"""  # noqa: S608 - of constants
"""The head of a namespace, if it is in the window."""

# A check of a whole log

COUNT_AND_LAST = "SELECT count(*), coalesce(max(position), 0) FROM events WHERE log = %(log)b"

FIRST_STREAMS = "SELECT namespace, name FROM streams WHERE log = %(log)b ORDER BY id LIMIT %(limit)b"

STREAM_ENDS = """
SELECT s.namespace, s.name, s.id, count(e.position)
FROM streams AS s
LEFT JOIN events AS e ON e.log = s.log AND e.stream = s.id
WHERE s.log = %(log)b
GROUP BY s.namespace, s.name, s.id
"""

NAMELESS = """
SELECT DISTINCT e.stream FROM events AS e
WHERE e.log = %(log)b AND NOT EXISTS (SELECT 1 FROM streams AS s WHERE s.log = e.log AND s.id = e.stream)
ORDER BY e.stream
"""

PLACES = f"""
SELECT {READ_COLUMNS}{SEAL_COLUMNS}, e.stream
FROM (
    SELECT * FROM events WHERE log = %(log)b AND position > %(after)b ORDER BY position LIMIT %(limit)b
) AS e
LEFT JOIN streams AS s ON s.log = e.log AND s.id = e.stream
LEFT JOIN types AS t ON t.log = e.log AND t.id = e.type
ORDER BY e.position
"""  # noqa: S608 - of constants
"""Rows with their seals and the numbers of their streams."""

# The database and its logs

CONNECTED = "SELECT pg_backend_pid()"

SESSION_LIMITS = """
SELECT set_config('statement_timeout', %(statement_timeout)b::text, false),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)b::text, false)
"""

SERVER = """
SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', current_schema(),
       current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes')
"""

DESCRIBED = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE n.nspname = current_schema() AND c.relname = ANY(%(tables)b::text[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
"""The columns of tables, in order, as the database describes them."""

REVISION = "SELECT version_num FROM eventlog_revision"

INSERT_REVISION = "INSERT INTO eventlog_revision (version_num) VALUES (%(revision)b)"

IDENTITY = "SELECT log, log_id, key, is_whole FROM logs WHERE name = %(name)b"

NAMES = "SELECT name FROM logs WHERE is_whole ORDER BY name"

INSERT_LOG = """
INSERT INTO logs (log, name, log_id, key, created_us, is_whole)
SELECT coalesce(max(log), 0) + 1, %(name)b, %(log_id)b, %(key)b, %(created_us)b, %(is_whole)b FROM logs
ON CONFLICT (name) DO NOTHING
"""
"""Two logs that are made at once get the same number, of which one is refused: its opening tries again."""

WHOLE = "UPDATE logs SET is_whole = true WHERE log = %(log)b AND key = %(key)b"
"""The one change of this row: nobody but the process that makes the copy has opened the log."""

TABLES_LOCK = "SELECT version_num FROM eventlog_revision FOR UPDATE"
"""The lock of all logs in the schema: a session that has it may change their tables. No commit needs it."""

TABLES_LOCK_AT_ONCE = f"{TABLES_LOCK} NOWAIT"

SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname = ANY(%(tables)b::text[])
"""
