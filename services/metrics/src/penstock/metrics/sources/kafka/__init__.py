"""Kind ``kafka``; `kind` is imported without aiokafka, all else needs it."""
