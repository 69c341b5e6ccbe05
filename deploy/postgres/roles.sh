#!/bin/sh
# Make the two roles and the database. PostgreSQL's image runs this script once, when its volume is empty. On your own
# server, run it as a role that may create roles and databases, with SECRETS set to the folder of the password files.
set -eu

SECRETS="${SECRETS:-/run/secrets}"
export SECRETS

# psql reads the passwords itself, so that they appear in no argument list.
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\set owner_password `cat "$SECRETS/owner_password"`
\set service_password `cat "$SECRETS/service_password"`
CREATE ROLE grovekeeper_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE grovekeeper_service LOGIN PASSWORD :'service_password';
CREATE DATABASE grovekeeper OWNER grovekeeper_owner ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE grovekeeper FROM PUBLIC;
GRANT CONNECT ON DATABASE grovekeeper TO grovekeeper_service;
SQL
