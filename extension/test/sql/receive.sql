-- Types whose stored form is not part of the format: their receive functions make it.
\set to '|tail -c +26 | head -c -2 > stream'
CREATE TYPE pair AS (a int, b text);
CREATE TABLE src (a json, b jsonb, c int[], d text[][], e int4range, f int4multirange, g inet, h cidr, i bit(5), j varbit(7),
                  k pair, l pair[], m tsvector, n tsquery, o path, p polygon, q box, r line, s circle, t interval hour to second,
                  u interval(2), v xid, w tid, x regclass, y oidvector, z jsonpath);
INSERT INTO src VALUES
  ('{"a": [1, 2 ]}', '{"a": [1, 2 ], "b": null}', '{1,NULL,3}', '{{a,b},{c,NULL}}', '[1,5)', '{[1,2),[5,9)}', '10.0.0.1/8', '10.0.0.0/8',
   B'10101', B'101', '(1,x)', ARRAY['(1,x)'::pair, NULL], 'fat:1 cat:2A', 'fat & !cat', '((0,0),(1,1))', '((0,0),(1,1),(2,0))',
   '(1,1),(0,0)', '{1,2,3}', '<(0,0),1>', '03:04:05.678', '1 day 1.234567', '77', '(1,2)', 'pg_class', '1 2 3', '$.a[*]'),
  ('[]', '[]', '{}', '{}', 'empty', '{}', '::1', '::/0', B'00000', B'', ROW(NULL, NULL)::pair, '{}', '', 'x', '[(0,0)]', '((0,0))',
   '(0,0),(0,0)', '{0,1,0}', '<(0,0),0>', '0', '0', '0', '(0,0)', 0, '1', '$'),
  (NULL, 'null', '[5:6]={7,8}', NULL, '(,)', '{(,)}', '2001:db8::/32', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE by_copy (LIKE src);
CREATE TABLE by_frames (LIKE src);
-- COPY binary calls the same functions; COPY text may store the same value in another way, as a tsvector.
\copy src to 'rows' (format binary)
\copy by_copy from 'rows' (format binary)
SELECT string_agg(DISTINCT c ->> 'class', ',') FROM json_array_elements(inrush.plan('src') -> 'columns') c;
COPY (SELECT inrush_test.blocks('by_frames', 'TABLE src')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames from 'stream' (format inrush)
SELECT *, (SELECT count(*) FROM by_frames) AS rows FROM differ('by_copy', 'by_frames');
-- Received as with the column's typmod, though the value sent had none.
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT '1 day 2:03:04.5678'::interval, '12345.6789 s'::interval$$, '{t,u}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (t, u) from 'stream' (format inrush)
SELECT t, u FROM by_frames WHERE t > '4 hours' OR u > '3 hours';
COPY (SELECT inrush_test.blocks('by_frames', $$SELECT B'1010'::varbit(9)::bit(4)$$, '{i}')) TO STDOUT (FORMAT binary) \g :to
\copy by_frames (i) from 'stream' (format inrush)
-- What the receive function does not like.
CREATE TABLE j (b jsonb);
COPY (SELECT short('j', '\x02')) TO STDOUT (FORMAT binary) \g :to
\copy j from 'stream' (format inrush)
COPY (SELECT short('j', '\x01'::bytea || '{"a":')) TO STDOUT (FORMAT binary) \g :to
\copy j from 'stream' (format inrush)
COPY (SELECT short('j', '')) TO STDOUT (FORMAT binary) \g :to
\copy j from 'stream' (format inrush)
-- bytes that it leaves
CREATE TABLE k (r int4range);
COPY (SELECT short('k', range_send('[1,2)'::int4range) || '\x00')) TO STDOUT (FORMAT binary) \g :to
\copy k from 'stream' (format inrush)
COPY (SELECT short('k', range_send('[1,2)'::int4range))) TO STDOUT (FORMAT binary) \g :to
\copy k from 'stream' (format inrush)
TABLE k;
TABLE j;
DROP TABLE src, by_copy, by_frames, j, k;
DROP TYPE pair;
-- Types that cannot be sent; the table takes its other columns.
CREATE TABLE refused (a int, acl aclitem, g gtsvector);
SELECT inrush.plan('refused') -> 'refusal' AS all, inrush.plan('refused', '{a}') -> 'refusal' AS one;
\copy refused from '/dev/null' (format inrush)
COPY (SELECT inrush_test.blocks('refused', 'SELECT 1', '{a}')) TO STDOUT (FORMAT binary) \g :to
\copy refused (a) from 'stream' (format inrush)
TABLE refused;
DROP TABLE refused;
