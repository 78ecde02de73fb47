-- Whom the user's own id means: the live accounts before the deleted ones, then the stronger source. Where several are
-- equal it means none, and has no row.
CREATE VIEW v_references AS
SELECT a.reference, a.account_id
FROM accounts a
WHERE a.reference IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM accounts o
                  WHERE o.reference = a.reference AND o.account_id <> a.account_id
                    AND (o.deleted_at IS NULL, o.reference_strength) >= (a.deleted_at IS NULL, a.reference_strength));
