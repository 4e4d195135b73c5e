"""metabandit: Thompson sampling for many related bandits."""
