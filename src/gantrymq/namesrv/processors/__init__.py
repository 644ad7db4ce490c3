"""What a name server answers, by what is asked about."""
