-- create_schema: there is a record of migrations.
-- index: none
CREATE TABLE IF NOT EXISTS datp_schema (
  version    integer NOT NULL PRIMARY KEY,
  name       varchar(64) NOT NULL,
  applied_at bigint NOT NULL
)
