"""Is this site ready?"""
