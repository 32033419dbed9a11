"""More than ROUGE: what an answer rests on, how varied it is, which domain it speaks of, what it was given."""
