-- The tables of the gem in `db/structure.sql` of an application that ran the gem's first migration.

CREATE FUNCTION public.cells_outstanding_leases_refuse_late_commit() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF clock_timestamp() - NEW.created_at > make_interval(secs => TG_ARGV[0]::double precision) THEN
    RAISE EXCEPTION 'lease % is older than % seconds: this transaction comes too late, run it again',
      NEW.uuid, TG_ARGV[0] USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN NULL;
END
$$;

CREATE TABLE public.cells_claims_verifications (
    model text NOT NULL,
    checkpoint text,
    updated_at timestamp with time zone NOT NULL
);

CREATE TABLE public.cells_outstanding_leases (
    uuid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.cells_claims_verifications
    ADD CONSTRAINT cells_claims_verifications_pkey PRIMARY KEY (model);

ALTER TABLE ONLY public.cells_outstanding_leases
    ADD CONSTRAINT cells_outstanding_leases_pkey PRIMARY KEY (uuid);

CREATE INDEX index_cells_outstanding_leases_on_created_at ON public.cells_outstanding_leases USING btree (created_at);

CREATE CONSTRAINT TRIGGER cells_outstanding_leases_refuse_late_commit AFTER INSERT ON public.cells_outstanding_leases DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.cells_outstanding_leases_refuse_late_commit('300');
